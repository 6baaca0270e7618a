"""Hand tables on: each kind of sink is an outlet that takes changes. Imported only when something is delivered."""
