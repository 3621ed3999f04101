"""Speed, memory and defaults of otmoe, measured side by side with what they are compared to."""
