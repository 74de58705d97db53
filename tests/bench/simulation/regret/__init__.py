"""Where the regret comes from: ``parts`` divides it by the bound's prices, ``moments`` says when
queries are lost, and ``fleets`` what a fleet loses that was chosen before its queries came."""
