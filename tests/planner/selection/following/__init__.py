"""Following the plan: route targets, their kinds, and where queries without room go."""
