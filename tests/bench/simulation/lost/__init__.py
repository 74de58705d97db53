"""Where queries are lost: ``parts`` says of each one that was what it could not have."""
