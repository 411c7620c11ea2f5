"""From what the user named to what is judged: files, what each of them is, and the input that cannot be read."""
