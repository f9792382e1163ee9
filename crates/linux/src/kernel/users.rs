//! Accounts of the system by name or number, as its name services know them. Asked when a file is read,
//! not while processes are looked at: a name service may take its time.

use std::ffi::{CStr, CString};
use std::io;
use std::ptr;

/// Most bytes of an account's record.
const MOST_RECORD_BYTES: usize = 1 << 20;

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name, or its number where it has none.
    pub name: String,
    /// The user.
    pub uid: u32,
    /// The group it begins with.
    pub gid: u32,
}

/// Why there is no such account.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// Nobody knows it.
    #[error("there is no user `{0}`; see `getent passwd`")]
    Unknown(String),
    /// The name services do not answer.
    #[error("cannot look up the user `{name}`: {source}; give its number")]
    Failed {
        /// As given.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

/// The account of a name; a number is good without one, and has the group of the same number then.
///
/// # Errors
/// When there is none, or the name services do not answer.
pub fn find(name: &str) -> Result<Account, UserError> {
    if let Ok(uid) = name.parse::<u32>() {
        return Ok(Account { name: name.to_owned(), uid, gid: uid });
    }
    let failed = |source| UserError::Failed { name: name.to_owned(), source };
    let text = CString::new(name).map_err(|_| UserError::Unknown(name.to_owned()))?;
    let mut room = vec![0; 4096];
    loop {
        match look_up(&text, &mut room) {
            Ok(Some((uid, gid))) => return Ok(Account { name: name.to_owned(), uid, gid }),
            Ok(None) => return Err(UserError::Unknown(name.to_owned())),
            Err(e) if e.raw_os_error() == Some(libc::ERANGE) && room.len() < MOST_RECORD_BYTES => {
                room.resize(room.len() * 4, 0);
            }
            Err(e) => return Err(failed(e)),
        }
    }
}

/// User and group of a name, with this room for the record.
fn look_up(name: &CStr, room: &mut [libc::c_char]) -> io::Result<Option<(u32, u32)>> {
    // SAFETY: a structure of integers and pointers, which may all be zero.
    let mut record: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = ptr::null_mut();
    // SAFETY: the name ends with a zero; the record, the room with its length and the result live over
    // the call, and nothing of the record is used after the room has gone.
    let error = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &raw mut record,
            room.as_mut_ptr(),
            room.len(),
            &raw mut found,
        )
    };
    match error {
        0 if found.is_null() => Ok(None),
        0 => Ok(Some((record.pw_uid, record.pw_gid))),
        // Some name services say so of a name that they do not know.
        libc::ENOENT | libc::ESRCH => Ok(None),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found() {
        let root = find("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(
            find("4711").unwrap(),
            Account { name: "4711".to_owned(), uid: 4711, gid: 4711 }
        );
    }

    #[test]
    fn nobody_of_that_name_is_told() {
        for name in ["no-such-user-here", "a\0b", ""] {
            let error = find(name).unwrap_err();
            assert!(matches!(error, UserError::Unknown(_)), "{name}: {error}");
        }
    }
}
