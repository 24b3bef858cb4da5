//! After a `kill -9`: how soon the first request is accepted again, with many open rounds and participants; and how soon the rounds of
//! a worker that held their leases go on with another.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use test_servers::postgres::{Cluster, Options};
use wire::participant::CheckInReply;

use crate::Outcome;
use crate::load::Load;
use crate::load::crowd::Crowd;
use crate::load::site::Site;
use crate::server::{Device, Input, Server};

const PARAMETERS: usize = 1000;
/// Each with one open round.
const TASKS: u32 = 100;
/// Participants of each open round.
const COHORT: u32 = 100;
const RESTARTS: usize = 5;
/// More rounds than any measurement sees.
const ROUNDS: u32 = 10_000;
/// Tasks of the worker that is lost, and participants of each.
const TAKEN_OVER: u32 = 20;
const FEW: u32 = 3;
const LEASE_MS: u32 = 5000;
const LOSSES: usize = 5;

pub(crate) async fn run() -> Outcome {
    let (load, crowd) = (Load::read(&[])?, Crowd::new(TASKS * COHORT)?);
    println!(
        "recovery: kill -9 and start again with {TASKS} open rounds, {} participants of {PARAMETERS} parameters, durable commits",
        TASKS * COHORT
    );
    restarts(&Site::on_sqlite(&load, &crowd).await?, &crowd, "SQLite").await?;
    let Some(cluster) = Cluster::start(Options { fsync: true, ..Options::default() }) else { return Ok(()) };
    restarts(&Site::on_postgres(&load, &crowd, &cluster, false).await?, &crowd, "PostgreSQL").await?;
    losses(&Site::on_postgres(&load, &crowd, &cluster, true).await?, &crowd).await
}

/// The device of one identity, which has data for a task.
fn device(server: &Server, identity: client_sdk::identity::Identity, task: u32) -> Outcome<Device> {
    Ok(Device { task: format!("task-{task:03}").leak(), ..server.again(identity)? })
}

async fn create_tasks(server: &Server, tasks: u32, cohort: u32) -> Outcome {
    for task in 0..tasks {
        server.create_task_named(&format!("task-{task:03}"), PARAMETERS, cohort, ROUNDS).await?;
    }
    Ok(())
}

/// Has a cohort check in until its round is open.
async fn open_round(server: &Server, cohort: &[Device]) -> Outcome {
    for _ in 0..10 {
        server.each(cohort, |device| device.check_in(0)).await?;
        if matches!(cohort[0].check_in(2000).await?, CheckInReply::Assigned(_)) {
            return Ok(());
        }
    }
    Err(format!("no round of {} opens", cohort[0].task).into())
}

async fn restarts(site: &Site<'_>, crowd: &Crowd, name: &str) -> Outcome {
    let server = site.serve()?;
    create_tasks(&server, TASKS, COHORT).await?;
    let mut identities = crowd.identities();
    let mut first = Vec::new();
    for task in 0..TASKS {
        let cohort = identities.by_ref().take(COHORT as usize);
        let cohort: Vec<_> = cohort.map(|identity| device(&server, identity, task)).collect::<Outcome<_>>()?;
        open_round(&server, &cohort).await?;
        first.extend(cohort.into_iter().next());
    }
    let input = Input::zeros(PARAMETERS)?;
    let listen = server.url("").replace("https://localhost", "127.0.0.1");
    let (mut server, mut listening, mut accepted) = (Some(server), Vec::new(), Vec::new());
    for device in first.into_iter().take(RESTARTS) {
        drop(server.take());
        let begin = Instant::now();
        server = Some(site.serve_with(&[("TRIBUTARY_HTTP_LISTEN", &listen)])?);
        listening.push(begin.elapsed());
        let reply = device.check_in(0).await?;
        accepted.push(begin.elapsed());
        match reply {
            CheckInReply::Assigned(work) => device.report(&work, &input).await?,
            other => return Err(format!("its round was forgotten: {other:?}").into()),
        }
    }
    for times in [&mut listening, &mut accepted] {
        times.sort_unstable();
    }
    let shown = |times: &[Duration]| {
        let ms = |at: usize| times[at].as_secs_f64() * 1e3;
        format!("median {:.0} ms, longest {:.0} ms", ms(times.len() / 2), ms(times.len() - 1))
    };
    println!(
        "  {name}, {RESTARTS} restarts: until it listens {}; until a check-in over a new connection is answered with the work of an open \
         round {} (goal: 2000 ms)",
        shown(&listening),
        shown(&accepted)
    );
    Ok(())
}

fn signal(name: &str, server: &Server) -> Outcome {
    let sent = Command::new("kill").args([name, &server.pid().to_string()]).status()?;
    if sent.success() { Ok(()) } else { Err("a signal was not sent".into()) }
}

/// The time in milliseconds since 1970.
fn now_ms() -> Outcome<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// One coordinator serves; of two that work, one holds every lease, since the other is stopped until the first is killed.
async fn losses(site: &Site<'_>, crowd: &Crowd) -> Outcome {
    let ttl = LEASE_MS.to_string();
    let works = [("TRIBUTARY_WORK_LEASE_TTL_MS", ttl.as_str())];
    let front = site.serve_with(&[("TRIBUTARY_WORK_ENABLED", "false")])?;
    let mut worker = site.serve_with(&works)?;
    create_tasks(&front, TAKEN_OVER, FEW).await?;
    let mut running = tokio::task::JoinSet::new();
    for (at, identity) in (0..TAKEN_OVER * FEW).zip(crowd.identities()) {
        let device = device(&front, identity, task_of(at))?;
        running.spawn(async move { persist(&device, task_of(at)).await });
    }
    let (mut longest, mut held) = (Vec::new(), Vec::new());
    for _ in 0..LOSSES {
        let other = site.serve_with(&works)?;
        signal("-STOP", &other)?;
        // It gets hold of the rounds, or has them already.
        tokio::time::sleep(Duration::from_millis(u64::from(LEASE_MS) + 1000)).await;
        let leases = loop {
            match site.held_leases()? {
                0 => {}
                held => break held,
            }
        };
        let killed_at = now_ms()?;
        signal("-CONT", &other)?;
        drop(std::mem::replace(&mut worker, other));
        let mut latest = 0;
        for task in 0..TAKEN_OVER {
            latest = latest.max(first_end(&front, task, killed_at).await?);
        }
        held.push(leases);
        longest.push(latest - killed_at);
    }
    running.shutdown().await;
    println!(
        "  PostgreSQL, the worker with the leases of {TAKEN_OVER} tasks is lost, another takes over: until every task has completed a \
         round {longest:?} ms, with {held:?} leases left behind (goal: one lease, {LEASE_MS} ms)"
    );
    Ok(())
}

/// The task of a device, by its number.
const fn task_of(device: u32) -> u32 {
    device / FEW
}

/// Takes part as apps do: prints each rejection, and tries again.
async fn persist(device: &Device, task: u32) {
    while let Err(error) = device.take_part(PARAMETERS).await {
        println!("    a device of task {task}: {error}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// When the first round of a task ended after a moment.
async fn first_end(front: &Server, task: u32, after: i64) -> Outcome<i64> {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let rounds = front.rounds_of(&format!("task-{task:03}")).await?;
        if let Some(ended) = rounds.iter().filter_map(|round| round["ended_at"].as_i64()).filter(|at| *at > after).min()
        {
            return Ok(ended);
        }
        if Instant::now() > end {
            return Err(format!("task {task} does not go on").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
