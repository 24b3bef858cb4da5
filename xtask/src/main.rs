//! Chores with logic: tidy, openapi.

fn main() {}
