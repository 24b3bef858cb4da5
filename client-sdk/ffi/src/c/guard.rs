//! Where panics stop and errors become codes.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::code::TributaryCode;
use crate::error::TributaryError;

thread_local! {
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a call of the C ABI. All locks of this library recover after a panic.
pub(super) fn guard(call: impl FnOnce() -> Result<TributaryCode, TributaryError>) -> TributaryCode {
    let done = catch_unwind(AssertUnwindSafe(call));
    match done.unwrap_or_else(|panic| Err(TributaryError::Defect(said(&*panic)))) {
        Ok(code) => code,
        Err(error) => {
            let code = TributaryCode::from(&error);
            LAST_ERROR.replace(error.to_string());
            code
        }
    }
}

/// The reason for the last error on this thread; empty before the first error.
pub(super) fn last_error() -> String {
    LAST_ERROR.with_borrow(Clone::clone)
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code_and_its_words_are_kept() {
        assert_eq!(guard(|| panic!("index {} is out of bounds", 7)), TributaryCode::Defect);
        assert_eq!(last_error(), "the library has a defect: index 7 is out of bounds");
        assert_eq!(guard(|| std::panic::panic_any(3)), TributaryCode::Defect);
        assert_eq!(guard(|| Ok(TributaryCode::Nothing)), TributaryCode::Nothing);
        assert!(last_error().contains("without words"), "what is no error leaves the last one");
        std::thread::spawn(|| assert_eq!(last_error(), "")).join().unwrap();
    }
}
