"""What tests share: real and made vocabularies, the command, fakes, broken builders, servers."""
