"""Commands that look, ask and change, against a real gateway on a free port."""
