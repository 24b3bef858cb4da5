//! Kills a worker at a chosen point.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use coordinator::work::{FailPoint, StepError};

/// Kills a worker at the `n`-th point, and counts the points in between.
#[derive(Debug)]
pub(crate) struct DieAt {
    left: Mutex<Option<usize>>,
    named: Option<&'static str>,
    pub(crate) reached: Mutex<HashMap<&'static str, usize>>,
}

impl DieAt {
    /// At the point with this index, from 0.
    pub(crate) fn nth(n: usize) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(Some(n)), named: None, reached: Mutex::default() })
    }

    /// At this point, whenever it is reached.
    pub(crate) fn named(point: &'static str) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(None), named: Some(point), reached: Mutex::default() })
    }

    /// Never: only counts.
    pub(crate) fn never() -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(None), named: None, reached: Mutex::default() })
    }
}

impl FailPoint for DieAt {
    fn reached(&self, point: &'static str) -> Result<(), StepError> {
        *self.reached.lock().unwrap().entry(point).or_default() += 1;
        if self.named == Some(point) {
            return Err(StepError::Stopped(point));
        }
        let mut left = self.left.lock().unwrap();
        match *left {
            Some(0) => {
                *left = None;
                Err(StepError::Stopped(point))
            }
            Some(n) => {
                *left = Some(n - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }
}
