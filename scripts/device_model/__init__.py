"""Measured operators against the device model: what was measured (aceso), and the same as HLO (operators)."""
