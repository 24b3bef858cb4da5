//! Splits a model into local tensors (FedPer, Arivazhagan et al. 2019) and shared ones, by patterns over tensor names.
//!
//! Clients hold the whole model. The layout of an update contains only the shared tensors.

use std::sync::Arc;

use task_spec::matches_pattern;

use crate::parameters::{Layout, LayoutError, MAX_NAME_BYTES, Parameters, TensorSpec, WrongLayout};

/// Maximum number of patterns of a task.
pub const MAX_PATTERNS: usize = 256;

/// Patterns over tensor names: `*` is any run of characters (also none, also dots), `?` is any one character, all else
/// is itself. Between 1 and [`MAX_PATTERNS`], each 1 to 128 printable ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patterns(Vec<String>);

/// Reasons patterns do not split a model in two.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    #[error("no pattern is given; name at least one, or leave the setting out to share every tensor")]
    Empty,
    #[error("{0} patterns are given; at most {MAX_PATTERNS} are possible")]
    TooMany(usize),
    /// The pattern cannot match any tensor name.
    #[error("pattern {0:?} is not 1 to {MAX_NAME_BYTES} printable ASCII characters without blanks")]
    Malformed(String),
    /// A pattern matches zero tensors; most likely a typo.
    #[error("pattern {pattern:?} matches no tensor; the model has {tensors}")]
    MatchesNone {
        pattern: String,
        /// The names of the first tensors, as a suggestion.
        tensors: String,
    },
    /// Every tensor would be local.
    #[error("the patterns match every tensor; at least one must be shared")]
    MatchesAll,
}

impl Patterns {
    /// Checks the number of patterns and their form.
    ///
    /// # Errors
    /// [`PatternError::Empty`], [`PatternError::TooMany`] or [`PatternError::Malformed`].
    pub fn new(patterns: Vec<String>) -> Result<Self, PatternError> {
        if patterns.is_empty() {
            return Err(PatternError::Empty);
        }
        if patterns.len() > MAX_PATTERNS {
            return Err(PatternError::TooMany(patterns.len()));
        }
        let malformed =
            |p: &&String| p.is_empty() || p.len() > MAX_NAME_BYTES || !p.bytes().all(|b| b.is_ascii_graphic());
        match patterns.iter().find(malformed) {
            Some(pattern) => Err(PatternError::Malformed(pattern.chars().take(MAX_NAME_BYTES).collect())),
            None => Ok(Self(patterns)),
        }
    }

    /// The patterns as they were given.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Whether any pattern matches the name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| matches_pattern(pattern, name))
    }
}

/// A model split into shared and local tensors, each part in layout order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    whole: Arc<Layout>,
    shared: Arc<Layout>,
    personal: Arc<Layout>,
    /// One entry per tensor of `whole`.
    is_personal: Vec<bool>,
}

impl Layout {
    /// Splits the model: tensors with matching names are local, all others are shared.
    ///
    /// # Errors
    /// [`PatternError::MatchesNone`] if a pattern matches zero tensors, [`PatternError::MatchesAll`] if all tensors match.
    pub fn partition(&self, personal: &Patterns) -> Result<Partition, PatternError> {
        let names = || self.tensors().iter().map(|tensor| tensor.name.as_str());
        for pattern in personal.as_slice() {
            if !names().any(|name| matches_pattern(pattern, name)) {
                let tensors = names().take(8).collect::<Vec<_>>().join(", ");
                let more = if self.tensors().len() > 8 { ", …" } else { "" };
                return Err(PatternError::MatchesNone { pattern: pattern.clone(), tensors: tensors + more });
            }
        }
        let is_personal: Vec<bool> = names().map(|name| personal.matches(name)).collect();
        let part = |wanted: bool| -> Result<Arc<Layout>, LayoutError> {
            let chosen = self.tensors().iter().zip(&is_personal).filter(|&(_, &is)| is == wanted);
            Layout::new(chosen.map(|(tensor, _)| tensor.clone()).collect::<Vec<TensorSpec>>()).map(Arc::new)
        };
        // Part of a valid layout is valid unless empty, and every pattern matched some tensor.
        let shared = part(false).map_err(|_| PatternError::MatchesAll)?;
        let personal = part(true).map_err(|_| PatternError::Empty)?;
        Ok(Partition { whole: Arc::new(self.clone()), shared, personal, is_personal })
    }
}

impl Partition {
    #[must_use]
    pub fn whole(&self) -> &Arc<Layout> {
        &self.whole
    }

    /// The sent, summed and published tensors.
    #[must_use]
    pub fn shared(&self) -> &Arc<Layout> {
        &self.shared
    }

    /// The tensors kept on the participant's device.
    #[must_use]
    pub fn personal(&self) -> &Arc<Layout> {
        &self.personal
    }

    /// Splits the whole model's values into shared and local ones.
    ///
    /// # Errors
    /// [`WrongLayout`] if the values belong to another model.
    pub fn split(&self, whole: &Parameters) -> Result<(Parameters, Parameters), WrongLayout> {
        if **whole.layout() != *self.whole {
            return Err(WrongLayout);
        }
        let mut shared = Vec::with_capacity(self.shared.len());
        let mut personal = Vec::with_capacity(self.personal.len());
        for (index, &is_personal) in self.is_personal.iter().enumerate() {
            let part = if is_personal { &mut personal } else { &mut shared };
            part.extend_from_slice(whole.tensor(index));
        }
        let fill = |layout: &Arc<Layout>, values| Parameters::new(Arc::clone(layout), values).map_err(|_| WrongLayout);
        Ok((fill(&self.shared, shared)?, fill(&self.personal, personal)?))
    }

    /// Reassembles the whole model from its two parts.
    ///
    /// # Errors
    /// [`WrongLayout`] if either is not a part of this partition.
    pub fn join(&self, shared: &Parameters, personal: &Parameters) -> Result<Parameters, WrongLayout> {
        if **shared.layout() != *self.shared || **personal.layout() != *self.personal {
            return Err(WrongLayout);
        }
        let mut whole = Vec::with_capacity(self.whole.len());
        let (mut next_shared, mut next_personal) = (0, 0);
        for &is_personal in &self.is_personal {
            let (part, next) = if is_personal { (personal, &mut next_personal) } else { (shared, &mut next_shared) };
            whole.extend_from_slice(part.tensor(*next));
            *next += 1;
        }
        Parameters::new(Arc::clone(&self.whole), whole).map_err(|_| WrongLayout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(names: &[&str]) -> Layout {
        let spec = |(i, name): (usize, &&str)| TensorSpec { name: (*name).to_owned(), shape: vec![i as u64 + 1] };
        Layout::new(names.iter().enumerate().map(spec).collect()).unwrap()
    }

    fn patterns(list: &[&str]) -> Patterns {
        Patterns::new(list.iter().map(|&p| p.to_owned()).collect()).unwrap()
    }

    #[test]
    fn globs_match_as_people_expect() {
        for (pattern, name, expected) in [
            ("fc2.*", "fc2.weight", true),
            ("fc2.*", "fc22.weight", false),
            ("head.?", "head.1", true),
            ("head.?", "head.12", false),
            ("head.?", "head.", false),
            ("*", "anything", true),
            ("*.bias", "a.b.bias", true),
            ("*.bias", "a.bias.b", false),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyyb", false),
            ("fc1", "fc1", true),
            ("fc1", "fc1.weight", false),
            ("fc[1]", "fc1", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn split_and_join_are_inverse() {
        let layout = layout(&["fc1.weight", "fc2.weight", "norm", "fc2.bias"]);
        let partition = layout.partition(&patterns(&["fc2.*"])).unwrap();
        let names = |layout: &Layout| layout.tensors().iter().map(|t| t.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(partition.shared()), ["fc1.weight", "norm"]);
        assert_eq!(names(partition.personal()), ["fc2.weight", "fc2.bias"]);

        let whole = Parameters::new(Arc::new(layout), (0..10_u8).map(f32::from).collect()).unwrap();
        let (shared, personal) = partition.split(&whole).unwrap();
        assert_eq!(shared.values(), [0.0, 3.0, 4.0, 5.0]);
        assert_eq!(personal.values(), [1.0, 2.0, 6.0, 7.0, 8.0, 9.0]);
        assert_eq!(partition.join(&shared, &personal).unwrap(), whole);
        assert_eq!(partition.join(&personal, &shared), Err(WrongLayout));
        assert_eq!(partition.split(&shared), Err(WrongLayout));
    }

    #[test]
    fn refuses_patterns_that_do_not_part_the_model() {
        let layout = layout(&["fc1", "fc2"]);
        assert_eq!(
            layout.partition(&patterns(&["fc1", "head.*"])).unwrap_err(),
            PatternError::MatchesNone { pattern: "head.*".into(), tensors: "fc1, fc2".into() }
        );
        assert_eq!(layout.partition(&patterns(&["fc?"])).unwrap_err(), PatternError::MatchesAll);
        assert_eq!(layout.partition(&patterns(&["fc1", "*2"])).unwrap_err(), PatternError::MatchesAll);
    }

    #[test]
    fn refuses_malformed_lists_also_when_deserialized() {
        assert_eq!(Patterns::new(vec![]), Err(PatternError::Empty));
        assert_eq!(Patterns::new(vec!["a".into(); 257]), Err(PatternError::TooMany(257)));
        assert_eq!(Patterns::new(vec!["a b".into()]), Err(PatternError::Malformed("a b".into())));
        assert_eq!(Patterns::new(vec![String::new()]), Err(PatternError::Malformed(String::new())));
    }
}
