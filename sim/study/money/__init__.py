"""What fleets cost over months and years: prices of a finished run, rent or buy, plans."""
