//! Which of the strategies for a model's size is taken.

use super::WrongRequest;
use super::memory::{state, usable};
use super::request::Request;
use super::rules::{Engine, STRATEGIES, Sharding, StrategyRow};

/// The engine and its strategy: the first whose state and activations fit, otherwise the last.
pub(super) fn choose(
    request: &Request,
    memory: u64,
    activations: u64,
) -> Result<(Engine, Sharding, &'static StrategyRow), WrongRequest> {
    let row = row(request.parameters);
    let engine = request.engine.unwrap_or(if row.pytorch.is_empty() { Engine::Deepspeed } else { Engine::Pytorch });
    let able = match engine {
        Engine::Pytorch => row.pytorch,
        Engine::Deepspeed => row.deepspeed,
    };
    let gpus = request.all_gpus();
    let fits = |sharding: &&Sharding| {
        state(request.parameters, **sharding, gpus).saturating_add(activations) <= usable(memory)
    };
    let chosen = able.iter().find(fits).or(able.last()).ok_or(WrongRequest::Engine)?;
    Ok((engine, *chosen, row))
}

fn row(parameters: u64) -> &'static StrategyRow {
    let [small, middle, large] = &STRATEGIES;
    [small, middle].into_iter().find(|row| row.parameters.contains(&parameters)).unwrap_or(large)
}
