"""The recipe for Django: a shop whose orders are paid once, and a report that is made once a day."""
