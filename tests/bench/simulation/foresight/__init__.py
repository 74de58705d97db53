"""What is lost for want of knowledge: ``causes`` sets possible causes of the regret side by side,
and ``unforeseen`` says what not knowing the arrivals costs by itself."""
