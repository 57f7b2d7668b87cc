"""Tools of the checkout that no user installs."""
