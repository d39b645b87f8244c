"""The primary key: what it is, finding its values, counting them."""
