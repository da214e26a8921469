"""The life of an event, told a second time from the documentation alone, and compared with the product."""
