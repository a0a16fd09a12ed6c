"""What objects are made of: documents, names, selectors, schemas, quantities, errors."""
