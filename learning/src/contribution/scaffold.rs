//! SCAFFOLD: control variates counteract the drift between participants with different data (Karimireddy et al. 2020, "SCAFFOLD: stochastic
//! controlled averaging for federated learning", algorithm 1 with option II).
//!
//! Participant i adds `c - cᵢ` to each of its gradients, where `cᵢ` is the mean of its own gradients when it last participated and `c` the
//! mean of all `cᵢ`. It trains model `x` to `y` and sends `Δy = y - x` and `Δcᵢ = cᵢ⁺ - cᵢ` with `cᵢ⁺ = cᵢ - c + (x - y) / ρ`. `ρ` is the
//! distance its steps cover along a constant gradient ([`Reach`](super::fed_nova::Reach)), the paper's `K η` for K plain steps, so
//! participants may take different numbers of steps. Any server optimizer takes the step by `Δy`, and `c⁺ = c + (n / N) mean Δcᵢ` for n of
//! N participants.
//!
//! **Units.** A reference reach `ρ₀` fixed by the task turns gradients into lengths: everything here is `ρ₀ c`, `ρ₀ cᵢ`, `ρ₀ Δcᵢ`. So both
//! halves of the summed vector, `[Δy, ρ₀ Δcᵢ]`, have the same scale and share clipping, quantization and masks, and the server never
//! divides.
//!
//! **Bounds.** `c` is exactly the mean of all `cᵢ` only if participants store exactly the sent values, so a participant clips here before
//! the codec would. Every honest `ρ₀ cᵢ` is within the clipping range of a coordinate, so their mean is, too. The server clamps it to that
//! range, which costs honest participants nothing and bounds the influence of others.

use std::sync::Arc;

use crate::checkpoint::{self, CheckpointError};
use crate::clip::{self, FixedClip};
use crate::parameters::{Layout, LayoutError, Parameters, TensorSpec, WrongLayout, WrongLength, first_not_finite};
use crate::quantize::{MeanUpdate, QuantizationParams};
use crate::update::Update;

/// Name prefix of the control variate's tensors in the published model.
pub const CONTROL: &str = "control/";

/// Reasons a task or an update cannot have control variates.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScaffoldError {
    /// The reach is not finite and above 0.
    #[error("SCAFFOLD needs local steps with a finite reach above 0, not {0}")]
    Reach(f64),
    /// With other weights, `c` would not be the plain mean over participants.
    #[error("SCAFFOLD needs max_weight = 1, not {0}: its control variate is the plain mean over participants")]
    MaxWeight(u32),
    /// The vectors belong to another model.
    #[error("the control variates do not fit the model: {0}")]
    WrongLength(#[from] WrongLength),
    #[error("value {index} of the update is NaN or infinite; a smaller learning rate may help")]
    NotFinite {
        /// The first such position.
        index: usize,
    },
}

/// The published, sent and summed layout: the model's tensors, then one control tensor for each.
///
/// # Errors
/// [`LayoutError`] if a tensor of the model already has such a name, or if twice the model is too large.
pub fn layout(model: &Layout) -> Result<Layout, LayoutError> {
    let control = model
        .tensors()
        .iter()
        .map(|tensor| TensorSpec { name: format!("{CONTROL}{}", tensor.name), shape: tensor.shape.clone() });
    Layout::new(model.tensors().iter().cloned().chain(control).collect())
}

/// The published layout of a model, with control variates if `has_control`.
///
/// # Errors
/// As for [`layout`], if `has_control`.
pub fn published(model: &Arc<Layout>, has_control: bool) -> Result<Arc<Layout>, LayoutError> {
    if has_control { layout(model).map(Arc::new) } else { Ok(Arc::clone(model)) }
}

/// Control variates times `ρ₀`, flat, in layout order.
#[derive(Clone, Copy)]
pub struct Controls<'a> {
    /// `ρ₀ c`, as published.
    pub server: &'a [f32],
    /// `ρ₀ cᵢ`, as stored; empty before the first participation.
    pub own: &'a [f32],
}

impl Controls<'_> {
    fn own(&self, index: usize) -> f32 {
        self.own.get(index).copied().unwrap_or_default()
    }

    fn check(&self, expected: usize) -> Result<(), WrongLength> {
        let own = if self.own.is_empty() { expected } else { self.own.len() };
        match [self.server.len(), own].into_iter().find(|&got| got != expected) {
            Some(got) => Err(WrongLength { expected, got }),
            None => Ok(()),
        }
    }
}

/// The participant's half, for one task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaffold {
    reference: f64,
    clip: Option<FixedClip>,
    range: f32,
}

impl Scaffold {
    /// For the reference reach `ρ₀`, the same on every device.
    ///
    /// # Errors
    /// [`ScaffoldError::Reach`] unless it is finite and above 0; [`ScaffoldError::MaxWeight`].
    pub fn new(reference: f64, params: &QuantizationParams) -> Result<Self, ScaffoldError> {
        if !(reference.is_finite() && reference > 0.0) {
            return Err(ScaffoldError::Reach(reference));
        }
        if params.max_weight != 1 {
            return Err(ScaffoldError::MaxWeight(params.max_weight));
        }
        let clip = params.clip_norm.and_then(|bound| FixedClip::new(bound).ok());
        Ok(Self { reference, clip, range: params.clip_range })
    }

    /// `c - cᵢ`, to be added to every gradient.
    ///
    /// # Errors
    /// [`ScaffoldError::WrongLength`].
    pub fn correction(&self, controls: Controls<'_>) -> Result<Vec<f32>, ScaffoldError> {
        controls.check(controls.server.len())?;
        let difference = |(index, server): (usize, &f32)| {
            narrow((f64::from(*server) - f64::from(controls.own(index))) / self.reference)
        };
        Ok(controls.server.iter().enumerate().map(difference).collect())
    }

    /// The contribution to send for `update`, whose steps covered `reach`: `[Δy, ρ₀ Δcᵢ]`, clipped. Also returns `ρ₀
    /// cᵢ`, to be stored once the contribution is part of a sum.
    ///
    /// # Errors
    /// Any [`ScaffoldError`]; nothing may be sent then.
    pub fn contribution(
        &self,
        reach: f64,
        controls: Controls<'_>,
        mut update: Update,
    ) -> Result<(Update, Vec<f32>), ScaffoldError> {
        if !(reach.is_finite() && reach > 0.0) {
            return Err(ScaffoldError::Reach(reach));
        }
        let parameters = update.delta.len();
        controls.check(parameters)?;
        let range = f64::from(self.range);
        update.delta.reserve_exact(parameters);
        for index in 0..parameters {
            let own = f64::from(controls.own(index));
            let gradient = -self.reference / reach * f64::from(update.delta[index]);
            let next = (own - f64::from(controls.server[index]) + gradient).clamp(-range, range);
            update.delta.push(narrow(next - own));
        }
        let norm = clip::norm(&update.delta);
        if !norm.is_finite() {
            return Err(ScaffoldError::NotFinite { index: first_not_finite(&update.delta).unwrap_or_default() });
        }
        let factor = self.clip.map_or(1.0, |clip| clip.factor(norm));
        for value in &mut update.delta {
            *value = narrow((f64::from(*value) * factor).clamp(-range, range));
        }
        let changes = update.delta[parameters..].iter().enumerate();
        let kept =
            changes.map(|(index, change)| (controls.own(index) + change).clamp(-self.range, self.range)).collect();
        Ok((update, kept))
    }

    /// The coordinator's half: splits the change of the control variates off the mean of n participants' updates and
    /// adds it to `control`, clamped to ±`range`. `population` is N.
    ///
    /// # Errors
    /// [`ScaffoldError::WrongLength`] if the mean is not twice as long as `control`; both are then unchanged.
    pub fn absorb(
        control: &mut [f32],
        mean: &mut MeanUpdate,
        population: u32,
        range: f32,
    ) -> Result<(), ScaffoldError> {
        let (expected, got) = (2 * control.len(), mean.delta.len());
        if expected != got {
            return Err(WrongLength { expected, got }.into());
        }
        let changes = mean.delta.split_off(control.len());
        Self::change(control, &changes, mean.participants, population, range);
        Ok(())
    }

    /// Adds the mean change of n `participants` out of a `population` of N to a slice of the control variate, clamped to ±`range`.
    /// Both slices have one length.
    pub fn change(control: &mut [f32], changes: &[f32], participants: u32, population: u32, range: f32) {
        let part = f64::from(participants) / f64::from(population.max(participants).max(1));
        for (control, change) in control.iter_mut().zip(changes) {
            *control = narrow(f64::from(*control) + part * f64::from(*change)).clamp(-range, range);
        }
    }
}

/// The model's part of a published file, without the control variate.
///
/// # Errors
/// [`LayoutError`] if nothing is left.
pub fn without_control(layout: &Layout) -> Result<Layout, LayoutError> {
    let is_models = |tensor: &&TensorSpec| !tensor.name.starts_with(CONTROL);
    Layout::new(layout.tensors().iter().filter(is_models).cloned().collect())
}

/// The model's tensors of a published file, without control variates.
///
/// # Errors
/// [`WrongLayout`] if the layout is not [`layout`] of `model`.
pub fn split(published: &Parameters, model: &Arc<Layout>) -> Result<(Parameters, Vec<f32>), WrongLayout> {
    let values = published.values();
    if values.len() != 2 * model.len() {
        return Err(WrongLayout);
    }
    let (own, control) = values.split_at(model.len());
    let own = Parameters::new(Arc::clone(model), own.to_vec()).map_err(|_| WrongLayout)?;
    Ok((own, control.to_vec()))
}

/// Reads the model of a published file with or without control variates.
///
/// # Errors
/// Any [`CheckpointError`].
pub fn read_model(bytes: &[u8], model: &Arc<Layout>) -> Result<Parameters, CheckpointError> {
    let found = checkpoint::read_layout(bytes)?;
    if !found.tensors().iter().any(|tensor| tensor.name.starts_with(CONTROL)) {
        return checkpoint::read(bytes, model);
    }
    let published = checkpoint::read(bytes, &Arc::new(layout(model)?))?;
    let split = split(&published, model).map_err(|error| CheckpointError::Malformed(error.to_string()))?;
    Ok(split.0)
}

#[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(clip_norm: Option<f32>) -> QuantizationParams {
        QuantizationParams {
            parameters: 4,
            modulus_bits: 32,
            clip_range: 1.0,
            clip_norm,
            max_weight: 1,
            max_cohort: 2,
            metrics: 0,
        }
    }

    fn update(delta: &[f32]) -> Update {
        Update { delta: delta.to_vec(), examples: 3, metrics: vec![] }
    }

    #[test]
    fn one_round_by_hand() {
        // K = 4 plain steps of 0.125 are the plan; this device took two of them.
        let rule = Scaffold::new(0.5, &params(None)).unwrap();
        let controls = Controls { server: &[0.25, -0.5], own: &[0.125, 0.25] };
        // c - ci = (0.125 / 0.5, -0.75 / 0.5).
        assert_eq!(rule.correction(controls).unwrap(), [0.25, -1.5]);
        let (sent, kept) = rule.contribution(0.25, controls, update(&[-0.0625, 0.125])).unwrap();
        // rho0 ci+ = rho0 ci - rho0 c + (rho0 / rho) (x - y) = (-0.125 + 0.125, 0.75 - 0.25).
        assert_eq!(kept, [0.0, 0.5]);
        assert_eq!(sent.delta, [-0.0625, 0.125, -0.125, 0.25]);
        // One of two participants: c moves by half of the change.
        let mut mean = MeanUpdate { delta: sent.delta, weight: 1, participants: 1, metrics: vec![] };
        let mut control = [0.25, -0.5];
        Scaffold::absorb(&mut control, &mut mean, 2, 1.0).unwrap();
        assert_eq!(control, [0.1875, -0.375]);
        assert_eq!(mean.delta, [-0.0625, 0.125]);
    }

    #[test]
    fn the_first_time_there_is_nothing_to_correct_by() {
        let rule = Scaffold::new(0.5, &params(None)).unwrap();
        let controls = Controls { server: &[0.0, 0.0], own: &[] };
        assert_eq!(rule.correction(controls).unwrap(), [0.0, 0.0]);
        let (sent, kept) = rule.contribution(0.5, controls, update(&[-0.25, 0.5])).unwrap();
        assert_eq!(sent.delta, [-0.25, 0.5, 0.25, -0.5]);
        assert_eq!(kept, [0.25, -0.5], "the mean gradient of the steps, times their reach");
    }

    #[test]
    fn what_is_kept_is_what_is_sent_even_where_it_is_clipped() {
        let rule = Scaffold::new(1.0, &params(Some(1.0))).unwrap();
        let (mut server, mut own) = (vec![0.0_f32; 2], vec![0.0_f32; 2]);
        // Alone in the federation: c must stay its own.
        for step in [&[30.0_f32, -0.5][..], &[-0.75, 0.25], &[0.0, -9.0], &[0.5, 0.5]] {
            let controls = Controls { server: &server, own: &own };
            let (sent, kept) = rule.contribution(1.0, controls, update(step)).unwrap();
            assert!(clip::norm(&sent.delta) <= 1.0 + 1e-6, "{sent:?}");
            let mut mean = MeanUpdate { delta: sent.delta, weight: 1, participants: 1, metrics: vec![] };
            Scaffold::absorb(&mut server, &mut mean, 1, 1.0).unwrap();
            own = kept;
            for (server, own) in server.iter().zip(&own) {
                assert!((server - own).abs() < 1e-6 && own.abs() <= 1.0, "{server} {own}");
            }
        }
    }

    #[test]
    fn nobody_leaves_more_in_the_control_variate_than_its_range() {
        let mut control = [0.9_f32, 0.0];
        for _ in 0..10 {
            let delta = vec![0.0, 0.0, 1.0, -1.0];
            let mut mean = MeanUpdate { delta, weight: 5, participants: 5, metrics: vec![] };
            // More participants than the stated population count as all of it.
            Scaffold::absorb(&mut control, &mut mean, 2, 1.0).unwrap();
        }
        assert_eq!(control, [1.0, -1.0]);
    }

    #[test]
    fn refuses_what_has_no_control_variate() {
        assert_eq!(Scaffold::new(0.0, &params(None)), Err(ScaffoldError::Reach(0.0)));
        let weighted = QuantizationParams { max_weight: 7, ..params(None) };
        assert_eq!(Scaffold::new(1.0, &weighted), Err(ScaffoldError::MaxWeight(7)));
        let rule = Scaffold::new(1.0, &params(None)).unwrap();
        let zeros = Controls { server: &[0.0, 0.0], own: &[] };
        assert!(matches!(rule.contribution(f64::NAN, zeros, update(&[0.0; 2])), Err(ScaffoldError::Reach(_))));
        assert!(matches!(rule.contribution(1.0, zeros, update(&[0.0; 3])), Err(ScaffoldError::WrongLength(_))));
        let other = Controls { server: &[0.0, 0.0], own: &[0.0] };
        assert!(matches!(rule.correction(other), Err(ScaffoldError::WrongLength(_))));
        let diverged = rule.contribution(1.0, zeros, update(&[0.0, f32::NAN]));
        assert_eq!(diverged.map(|_| ()), Err(ScaffoldError::NotFinite { index: 1 }));
        let mut mean = MeanUpdate { delta: vec![0.0; 3], weight: 1, participants: 1, metrics: vec![] };
        assert!(Scaffold::absorb(&mut [0.0, 0.0], &mut mean, 2, 1.0).is_err());
    }

    #[test]
    fn a_published_file_holds_the_model_and_then_the_control_variate() {
        let spec = |name: &str| TensorSpec { name: name.into(), shape: vec![2] };
        let model = Arc::new(Layout::new(vec![spec("w"), spec("v")]).unwrap());
        let both = layout(&model).unwrap();
        let names: Vec<_> = both.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["w", "v", "control/w", "control/v"]);
        let published = Parameters::new(both.into(), (0..8_u8).map(f32::from).collect()).unwrap();
        let (own, control) = split(&published, &model).unwrap();
        assert_eq!((own.values(), &control[..]), (&[0.0, 1.0, 2.0, 3.0][..], &[4.0, 5.0, 6.0, 7.0][..]));
        assert!(split(&own, &model).is_err());
        // Readers of the model accept either file.
        for file in [&published, &own].map(|parameters| checkpoint::write(parameters).unwrap()) {
            assert_eq!(read_model(&file, &model), Ok(own.clone()));
        }
        let clash = Layout::new(vec![spec("w"), spec("control/w")]).unwrap();
        assert!(layout(&clash).is_err());
    }
}
