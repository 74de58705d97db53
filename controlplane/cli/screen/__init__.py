"""One screen of an installation that is drawn again and again: what ``modelless top`` does.

Read ``readings`` (what a gateway is asked), then ``frame`` (what is shown of it, as lines of plain
text) and ``terminal`` (drawing lines without flicker, and leaving the terminal as it was).
"""
