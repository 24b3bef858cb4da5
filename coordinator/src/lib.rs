//! The service: HTTP, background work, configuration.
