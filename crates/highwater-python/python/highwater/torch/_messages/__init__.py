"""What users read of us: exceptions, places in their code, amounts of memory, what is wrong with an argument."""
