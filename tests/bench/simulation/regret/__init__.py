"""Where the regret comes from: ``parts`` divides it by the bound's prices and ``groups`` says on
which queries it falls, ``counterfactuals`` what it would be with something that no policy can have,
``moments`` when it is lost, ``fleets`` what fleets of a fixed size leave, ``uninterrupted`` how
much of it is a bound that interrupts batches, and ``spent`` what devices did with their time, and
why their batches were no larger."""
