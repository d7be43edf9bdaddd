"""What a finance department adds to hardware, space and electricity."""
