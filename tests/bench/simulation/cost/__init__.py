"""Where the cost of a fleet goes: ``parts`` divides what is billed above the bound."""
