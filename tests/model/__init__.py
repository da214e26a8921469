"""An independent model of the life of an event, by the documentation, compared with the product."""
