"""What the readers share: tables, numbers, lines, roles, splitting."""
