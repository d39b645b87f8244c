"""Making a copied or moved table whole at its present address."""
