"""The only room that searches for a plan: what can be chosen, what each choice costs, and why one is best."""
