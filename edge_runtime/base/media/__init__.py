"""Sound and pictures: sample rates, sample clocks, file headers, sizes. Samples in, samples out."""
