"""What a run asks of its machine, and what another machine would give it: devices, memory, throughput levers, the decision."""
