"""The self-contained build: the program with its interpreter, by PyInstaller."""
