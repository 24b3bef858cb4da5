//! Operators' views.

mod assignments;
mod audit;
mod compare;
mod contributions;
mod devices;
mod events;
mod models;
mod narrow;
mod presets;
mod provenance;
mod rounds;
mod servers;
mod shape;
mod tasks;
