//! Checks the arguments of callers: pointers are validated before use.
//!
//! Each function rejects NULL and misaligned pointers. A C caller promises that other pointers point to memory of the type and length
//! in the header, without concurrent writes. A library cannot check this promise.

use std::ffi::{CStr, c_char};

use super::code::TributaryCode;
use crate::error::TributaryError;

fn refuse<T>(pointer: *const T, name: &str) -> Result<(), TributaryError> {
    if pointer.is_null() {
        return Err(TributaryError::Argument(format!("{name} is NULL")));
    }
    if !pointer.is_aligned() {
        return Err(TributaryError::Argument(format!("{name} is not aligned to {} bytes", align_of::<T>())));
    }
    Ok(())
}

/// A text: UTF-8 up to its NUL.
pub(super) fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, TributaryError> {
    refuse(pointer, name)?;
    #[expect(unsafe_code, reason = "a text of C has no length but its NUL")]
    // SAFETY: not NULL; the caller promises a NUL, and to leave the text as it is until the call returns. Functions use
    // it only until then.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|error| TributaryError::Argument(format!("{name} is not UTF-8: {error}")))
}

/// An array; NULL only if it is empty.
pub(super) fn array<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], TributaryError> {
    if count == 0 {
        return Ok(&[]);
    }
    refuse(pointer, name)?;
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(TributaryError::Argument(format!("{name} cannot have {count} elements")));
    }
    #[expect(unsafe_code, reason = "an array of C is a pointer and a count")]
    // SAFETY: not NULL, aligned, of a size that memory can have; the caller promises so many elements, and to leave
    // them as they are until the call returns. Functions use the slice only until then, and every T here is valid for
    // all bit patterns of its size.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Writes a result to where the caller wants it.
pub(super) fn give<T>(value: T, to: *mut T, name: &str) -> Result<(), TributaryError> {
    refuse(to, name)?;
    #[expect(unsafe_code, reason = "the caller says where a result goes")]
    // SAFETY: not NULL and aligned. The caller promises memory for one T, without other reads or writes during the
    // call. The old value is overwritten, not dropped: the types written here lack destructors.
    unsafe {
        to.write(value);
    }
    Ok(())
}

/// That a result can be given, before anything is done for it.
pub(super) fn can_give<T>(to: *mut T, name: &str) -> Result<(), TributaryError> {
    refuse(to, name)
}

/// The caller's value at a pointer, which may be NULL.
pub(super) fn optional<T: Copy>(pointer: *const T, name: &str) -> Result<Option<T>, TributaryError> {
    if pointer.is_null() {
        return Ok(None);
    }
    array(pointer, 1, name).map(|one| one.first().copied())
}

/// Copies values into a buffer with room for `size` of them. TOO_SMALL if there is room for fewer; `length`, unless NULL, gets how
/// many there are.
pub(super) fn put_all<T: Copy>(
    values: &[T],
    buffer: *mut T,
    size: usize,
    length: *mut usize,
) -> Result<TributaryCode, TributaryError> {
    if !length.is_null() {
        give(values.len(), length, "length")?;
    }
    if size < values.len() {
        return Ok(TributaryCode::TooSmall);
    }
    if !values.is_empty() {
        refuse(buffer.cast_const(), "buffer")?;
        #[expect(unsafe_code, reason = "a buffer of C is a pointer and a size")]
        // SAFETY: not NULL and aligned; the caller promises room for `size` values, and at most `size` are written. The
        // values are ours, so the two do not overlap.
        unsafe {
            buffer.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
    }
    Ok(TributaryCode::Ok)
}

/// The same for a text with its NUL.
pub(super) fn put(
    text: &str,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Result<TributaryCode, TributaryError> {
    let bytes: Vec<u8> = text.bytes().chain([0]).collect();
    put_all(&bytes, buffer.cast(), size, length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    fn said<T>(result: Result<T, TributaryError>) -> String {
        result.map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_argument_is_refused_by_its_name() {
        assert_eq!(said(text(null(), "options")), "options is NULL");
        assert!(said(text(c"\xff".as_ptr(), "options")).contains("options is not UTF-8"));
        assert_eq!(text(c"ü".as_ptr(), "options"), Ok("ü"));
        assert_eq!(array(null::<f32>(), 0, "values"), Ok(&[][..]));
        assert_eq!(said(array(null::<f32>(), 1, "values")), "values is NULL");
        let floats = [1.0_f32, 2.0];
        assert_eq!(array(floats.as_ptr(), 2, "values"), Ok(&floats[..]));
        assert!(said(array(floats.as_ptr(), usize::MAX, "values")).contains("cannot have"));
        let odd = floats.as_ptr().wrapping_byte_add(1);
        assert_eq!(said(array(odd, 1, "values")), "values is not aligned to 4 bytes");
        assert_eq!(said(give(1_u64, std::ptr::null_mut(), "out")), "out is NULL");
        assert_eq!(optional(null::<u64>(), "callbacks"), Ok(None));
    }

    #[test]
    fn what_is_empty_is_not_looked_at() {
        let nowhere = std::ptr::without_provenance::<f32>(1);
        assert_eq!(array(nowhere, 0, "values"), Ok(&[][..]));
        assert_eq!(text(c"".as_ptr(), "task"), Ok(""));
        assert_eq!(put_all::<f32>(&[], nowhere.cast_mut(), 0, null_mut()), Ok(TributaryCode::Ok));
        let (too_many, fit) = (isize::MAX.unsigned_abs() / 4 + 1, [1_u8]);
        assert!(said(array(null::<f32>().wrapping_byte_add(4), too_many, "values")).contains("cannot have"));
        assert_eq!(array(fit.as_ptr(), 1, "bytes"), Ok(&fit[..]));
        assert_eq!(optional(fit.as_ptr(), "byte"), Ok(Some(1)));
    }

    #[test]
    fn a_result_is_given_where_there_is_room_for_it_and_nowhere_else() {
        let mut room = [0_u64; 3];
        let begin = room.as_mut_ptr();
        assert_eq!(give(7, begin.wrapping_add(1), "out"), Ok(()));
        let odd = begin.wrapping_byte_add(4);
        assert_eq!(said(give(8, odd, "out")), "out is not aligned to 8 bytes");
        assert_eq!(said(can_give(odd, "out")), "out is not aligned to 8 bytes");
        assert_eq!(said(put_all(&[8, 8], odd, 2, null_mut())), "buffer is not aligned to 8 bytes");
        let odd_length = begin.cast::<usize>().wrapping_byte_add(1);
        assert!(said(put_all(&[8_u64], begin, 1, odd_length)).contains("length is not aligned"));
        assert_eq!(put_all(&[8, 9], begin.wrapping_add(2), 1, null_mut()), Ok(TributaryCode::TooSmall));
        assert_eq!(put_all(&[9], begin.wrapping_add(2), 1, null_mut()), Ok(TributaryCode::Ok));
        assert_eq!(room, [0, 7, 9]);
    }

    #[test]
    fn a_text_is_copied_whole_or_not_at_all() {
        let mut buffer = [7 as c_char; 4];
        let mut length = 0;
        assert_eq!(put("abcd", buffer.as_mut_ptr(), 4, &raw mut length), Ok(TributaryCode::TooSmall));
        assert_eq!((length, buffer), (5, [7; 4]));
        assert_eq!(put("abc", buffer.as_mut_ptr(), 4, std::ptr::null_mut()), Ok(TributaryCode::Ok));
        assert_eq!(text(buffer.as_ptr(), "buffer"), Ok("abc"));
        assert_eq!(put("abc", std::ptr::null_mut(), 0, &raw mut length), Ok(TributaryCode::TooSmall));
        assert!(put("abc", std::ptr::null_mut(), 4, &raw mut length).is_err());
        assert_eq!(put_all::<u8>(&[], std::ptr::null_mut(), 0, &raw mut length), Ok(TributaryCode::Ok));
        assert_eq!(length, 0);
    }
}
