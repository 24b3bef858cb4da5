//! The executable as people, scripts and other processes meet it. One test binary, since each would link everything.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "the environment says how long some tests are to last")]

mod audited;
mod away;
mod batches;
mod collector;
mod company;
mod conditions;
mod damaged;
mod demo;
mod exit_codes;
mod exported;
mod files;
mod first_start;
mod forged;
mod full_disk;
mod initial_model;
mod inputs;
mod issued;
mod kept;
mod kept_on_postgres;
mod killed;
mod kills;
mod liar;
mod lies;
mod log_level;
mod logged;
mod members;
mod narrowed;
mod on_postgres;
mod operator;
mod own_client;
mod privacy;
mod processes;
mod program;
mod proxy;
mod ready;
mod replicas;
mod restored;
mod resumed;
mod secrecy;
mod serving;
mod shells;
mod shown;
mod shredded;
mod signed;
mod simulate;
mod subtraction;
mod support;
mod tables;
mod task_input;
mod traced;
mod transfers;
mod wrong_lines;
mod wrong_tasks;
