"""Object stores behind one protocol. Owns no state; translates the errors of stores."""
