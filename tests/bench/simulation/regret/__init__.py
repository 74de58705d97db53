"""Where the regret comes from: ``parts`` divides it by the bound's own prices."""
