"""What a mixture of experts is: families of experts, the gate, averages, divergences."""
