//! APFL (Deng et al. 2020, algorithm 1): the personalized model is α v + (1 - α) w, where w is the participant's copy
//! of the shared model, v is local, and α follows its own gradient.
//!
//! The paper steps w, v and α batch by batch; here w is trained first and then the personalized model, so that any
//! trainer works: a step of v with rate η against α ∇f(α v + (1 - α) w) is a step of the personalized model with rate η
//! α². α moves once per round, against the mean gradient of those steps.

use std::sync::Arc;

use learning::{Layout, Parameters, TensorSpec, WrongLayout};

use super::round::{Turn, mix, narrow};
use super::{LocalError, LocalResult, LocalRound, Method, MethodError, PersonalTensors};
use crate::trainer::{Constraints, Trained};

/// Bounds of alpha. Beyond them the training of v or w would stop.
const ALPHA: std::ops::RangeInclusive<f64> = 0.05..=0.95;
/// Name of the tensor that stores α with v.
const ALPHA_TENSOR: &str = "apfl.alpha";

/// The settings of `[personalization]`, and the layout of v and α.
pub(super) struct Apfl {
    alpha: f64,
    alpha_rate: f64,
    whole: Arc<Layout>,
    kept: Arc<Layout>,
}

impl Apfl {
    /// # Errors
    /// [`MethodError::Layout`] if a tensor of the model has the name of α's.
    pub(super) fn new(whole: &Arc<Layout>, alpha: f64, alpha_rate: f64) -> Result<Self, MethodError> {
        let mut tensors = whole.tensors().to_vec();
        tensors.push(TensorSpec { name: ALPHA_TENSOR.to_owned(), shape: vec![1] });
        Ok(Self { alpha, alpha_rate, whole: Arc::clone(whole), kept: Arc::new(Layout::new(tensors)?) })
    }

    pub(super) fn stored_layout(&self) -> &Arc<Layout> {
        &self.kept
    }

    /// v and α as stored.
    fn open(&self, kept: &PersonalTensors) -> Result<(Parameters, f64), WrongLayout> {
        let (alpha, local) = kept.0.values().split_last().ok_or(WrongLayout)?;
        let local = Parameters::new(Arc::clone(&self.whole), local.to_vec()).map_err(|_| WrongLayout)?;
        Ok((local, f64::from(*alpha).clamp(*ALPHA.start(), *ALPHA.end())))
    }

    fn close(&self, local: &Parameters, alpha: f64) -> Result<PersonalTensors, WrongLayout> {
        let values = [local.values(), &[narrow(alpha)]].concat();
        Parameters::new(Arc::clone(&self.kept), values).map(PersonalTensors::new).map_err(|_| WrongLayout)
    }
}

impl Method for Apfl {
    fn run(&self, round: &mut LocalRound<'_>) -> Result<LocalResult, LocalError> {
        let (mut local, alpha) = match round.kept {
            Some(kept) => self.open(kept)?,
            None => (round.received.clone(), self.alpha),
        };
        let evaluated = round.evaluate(round.received)?;
        let update = round.train(round.received)?;
        let shared = &update.parameters;
        let start = mix(&local, narrow(alpha), shared);
        let mut plan = round.job.plan.clone();
        let rate = plan.learning_rate * alpha * alpha;
        // Only plain steps remain, whose sum is the sum of their gradients.
        (plan.learning_rate, plan.momentum, plan.weight_decay, plan.proximal_mu) = (rate, 0.0, 0.0, 0.0);
        let batches = update.examples.div_ceil(u64::from(plan.batch_size.max(1)));
        let steps = plan.steps.map_or_else(|| batches.saturating_mul(u64::from(plan.epochs)), u64::from).max(1);
        let trained = round.train_within(&start, plan, Turn::Own(1), Constraints::default())?;
        // A trainer that does not report its reach took all steps at one rate.
        #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
        let reach = trained.reach().unwrap_or(rate * steps as f64);
        let Trained { parameters: end, metrics: said, .. } = trained;

        let moved = start.values().iter().zip(end.values()).map(|(start, end)| f64::from(start - end));
        let apart = local.values().iter().zip(shared.values()).map(|(local, shared)| f64::from(local - shared));
        let gradient = moved.zip(apart).map(|(moved, apart)| moved * apart).sum::<f64>() / reach;
        let next = (alpha - self.alpha_rate * gradient).clamp(*ALPHA.start(), *ALPHA.end());

        let share = narrow(alpha);
        for ((local, end), shared) in local.values_mut().iter_mut().zip(end.values()).zip(shared.values()) {
            *local = (end - (1.0 - share) * shared) / share;
        }
        let own = round.own(&mix(&local, narrow(next), shared))?.said(said);
        let personal = self.close(&local, next)?;
        Ok(LocalResult { update, personal: Some(personal), evaluated, own })
    }
}
