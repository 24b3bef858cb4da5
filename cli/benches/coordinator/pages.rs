//! Requests of an operator's page for a task with very many rounds, and the latency of each answer until its last byte.
//! Rendering is left out.

use std::time::{Duration, Instant};

use test_servers::postgres::{Cluster, Options};
use tokio::task::JoinSet;
use wire::route;

use crate::Outcome;
use crate::load::Load;
use crate::load::crowd::Crowd;
use crate::load::site::Site;
use crate::server::{Device, Server, TASK};

const COHORT: u32 = 3;
const PARAMETERS: usize = 10;
/// Number of requests to each address.
const REPEATS: usize = 100;
/// The goal of every answer, for 99 of 100.
const GOAL_MS: f64 = 50.0;
/// Rounds of a page, the most there may be.
const PAGE: usize = 500;

/// Runs that many rounds on SQLite and on PostgreSQL, then sends the requests.
pub(crate) async fn run(rounds: u32) -> Outcome {
    let (load, crowd) = (Load::read(&[])?, Crowd::new(COHORT)?);
    println!(
        "pages: a task of {rounds} rounds, real ones of {COHORT} participants; durable commits; {REPEATS} requests each"
    );
    measure(&Site::on_sqlite(&load, &crowd).await?, &crowd, rounds, "SQLite").await?;
    let Some(cluster) = Cluster::start(Options { fsync: true, ..Options::default() }) else { return Ok(()) };
    measure(&Site::on_postgres(&load, &crowd, &cluster, false).await?, &crowd, rounds, "PostgreSQL").await
}

async fn measure(site: &Site<'_>, crowd: &Crowd, rounds: u32, name: &str) -> Outcome {
    let server = site.serve()?;
    let begin = Instant::now();
    complete(&server, crowd, rounds).await?;
    println!("  {name}: {rounds} rounds in {:.0} s", begin.elapsed().as_secs_f64());
    let tasks = server.get(route::TASKS).await?;
    let task = tasks["items"][0]["id"].as_str().unwrap().to_owned();
    let list = route::fill(route::ROUNDS, &[&task]);
    let models = route::fill(route::MODELS, &[&task]);
    let middle = rounds / 2;
    let asked = [
        ("the task", route::fill(route::TASK, &[&task])),
        ("its newest 500 rounds", format!("{list}?limit={PAGE}")),
        ("500 rounds from the middle", format!("{list}?limit={PAGE}&cursor=rounds.{middle}")),
        ("one round", route::fill(route::ROUND, &[&task, &middle])),
        ("who was drawn for it", route::fill(route::ASSIGNMENTS, &[&task, &middle])),
        ("its newest 500 models", format!("{models}?limit={PAGE}")),
        ("its newest 50 events", format!("{}?task={task}", route::AUDIT)),
        ("it, compared with itself", format!("{}?task={task}&task={task}", route::COMPARE)),
        ("500 events of one kind", format!("{}?limit={PAGE}&kind=task_created", route::AUDIT)),
    ];
    for (what, path) in &asked {
        let (mut times, mut bytes, cpu) = (Vec::new(), 0, server.cpu_seconds()?);
        for _ in 0..REPEATS {
            let begin = Instant::now();
            bytes = server.fetch(path).await?.len();
            times.push(begin.elapsed());
        }
        let cpu_ms = (server.cpu_seconds()? - cpu) * 1e3 / REPEATS as f64;
        let first = times[0].as_secs_f64() * 1e3;
        times.sort_unstable();
        let ms = |at: usize| times[at].as_secs_f64() * 1e3;
        let p99 = ms(REPEATS - 2);
        println!(
            "    {what}: p50 {:.1} ms, p99 {p99:.1} ms (goal {GOAL_MS} ms), longest {:.1} ms, the first {first:.1} ms; {:.1} kB, {cpu_ms:.1} \
             CPU-ms of the server each",
            ms(REPEATS / 2),
            ms(REPEATS - 1),
            bytes as f64 / 1e3
        );
    }
    let begin = Instant::now();
    let (mut all, mut cursor) = (0, String::new());
    loop {
        let page = server.get(&format!("{list}?limit={PAGE}{cursor}")).await?;
        all += page["items"].as_array().unwrap().len();
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    println!("    all {all} rounds, page by page, as an export reads them: {:.2} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    let log = server.fetch(route::AUDIT_EXPORT).await?.len();
    println!("    the audit log, exported: {:.2} s, {:.1} MB", begin.elapsed().as_secs_f64(), log as f64 / 1e6);
    Ok(())
}

/// Has the participants complete a task of that many rounds.
async fn complete(server: &Server, crowd: &Crowd, rounds: u32) -> Outcome {
    server.create_task(PARAMETERS, COHORT, rounds).await?;
    let mut running = JoinSet::new();
    for identity in crowd.identities() {
        let device = Device { task: TASK, ..server.again(identity)? };
        running.spawn(async move {
            loop {
                if device.take_part(PARAMETERS).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
    }
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let tasks = server.get(route::TASKS).await?;
        if tasks["items"][0]["status"] == "COMPLETED" {
            running.shutdown().await;
            return Ok(());
        }
    }
}
