"""The nouns of the system and where they are kept: types, errors, catalog, artifacts, builders."""
