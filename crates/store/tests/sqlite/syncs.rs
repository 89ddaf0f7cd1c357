//! What is on disk when a call returns: counts the syncs of the write-ahead log, by a VFS that wraps SQLite's own.
#![expect(unsafe_code, reason = "a VFS is a table of C functions")]

use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_int},
    path::Path,
    sync::{Arc, Mutex, Once, OnceLock},
};

use rusqlite::ffi;
use windlass_model::RateLimit;
use windlass_store::{
    Actor, AdminAction,
    conformance::kit::*,
    sqlite::{Options, Sqlite},
};

/// The functions of the wrapped VFS that open and sync files.
static OPEN: OnceLock<Open> = OnceLock::new();
static SYNC: OnceLock<Sync> = OnceLock::new();

type Open = unsafe extern "C" fn(
    *mut ffi::sqlite3_vfs,
    ffi::sqlite3_filename,
    *mut ffi::sqlite3_file,
    c_int,
    *mut c_int,
) -> c_int;
type Sync = unsafe extern "C" fn(*mut ffi::sqlite3_file, c_int) -> c_int;

/// The names of open files by address, and how often each was synced.
static NAMES: Mutex<Option<HashMap<usize, String>>> = Mutex::new(None);
static SYNCS: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);

/// Opens a file by the wrapped VFS, and replaces the file's function for syncs by one that counts.
unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let open = OPEN.get().expect("set before it is called");
    // SAFETY: the arguments are SQLite's and are passed on unchanged; a file that was opened has a table of functions.
    unsafe {
        let code = open(vfs, name, file, flags, out);
        if code == ffi::SQLITE_OK && !name.is_null() && !(*file).pMethods.is_null() {
            let mut methods = *(*file).pMethods;
            SYNC.get_or_init(|| methods.xSync.expect("files can be synced"));
            methods.xSync = Some(sync);
            (*file).pMethods = Box::leak(Box::new(methods));
            let name = CStr::from_ptr(name.cast::<c_char>()).to_string_lossy().into_owned();
            NAMES.lock().expect("names").get_or_insert_default().insert(file as usize, name);
        }
        code
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let name = NAMES.lock().expect("names").get_or_insert_default().get(&(file as usize)).cloned();
    if let Some(name) = name {
        *SYNCS.lock().expect("syncs").get_or_insert_default().entry(name).or_default() += 1;
    }
    // SAFETY: the arguments are SQLite's and are passed on unchanged.
    unsafe { SYNC.get().expect("set when the file was opened")(file, flags) }
}

/// Counts the syncs of all files that are opened from now on.
fn count_syncs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the copy is never freed, and differs from SQLite's default VFS only in one function.
        let code = unsafe {
            let mut vfs = *ffi::sqlite3_vfs_find(std::ptr::null());
            OPEN.set(vfs.xOpen.expect("it opens files")).expect("set once");
            vfs.xOpen = Some(open);
            vfs.pNext = std::ptr::null_mut();
            vfs.zName = c"counting".as_ptr();
            ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1)
        };
        assert_eq!(code, ffi::SQLITE_OK);
    });
}

/// How often the write-ahead log of a file was synced.
fn syncs(path: &Path) -> usize {
    let log = format!("{}-wal", path.display());
    SYNCS.lock().expect("syncs").get_or_insert_default().get(&log).copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_charges_a_rate_limit_is_on_disk_before_its_jobs_start() {
    count_syncs();
    let (_folder, path) = super::path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    let me = worker(&store, 1).await;
    let rule = AdminAction::Limit(RateLimit::per("api", 2, secs(60)).burst(2));
    let _ = store.control().administer(at(0), &rule, &Actor::new("someone")).await.expect("a limit");
    submit(&store, &[job(1)]).await;
    let claim_and_count = async |number: i64| {
        let before = syncs(&path);
        let claimed = claim(&store, at(1), &claim_request(me, number, 1)).await;
        (ids(&claimed), syncs(&path) - before)
    };
    assert_eq!(
        claim_and_count(1).await,
        (vec![id(1)], 0),
        "a claim that charges nothing does not wait for the disk"
    );
    let limited = |n| {
        let mut new = job(n);
        let charge = windlass_model::RateCharge { limit: "api".into(), weight: 1 };
        new.settings.rate = Some(Box::new(charge));
        new
    };
    submit(&store, &[limited(2), limited(3), limited(4)]).await;
    assert_eq!(claim_and_count(2).await, (vec![id(2)], 1), "the charge is on disk");
    assert_eq!(claim_and_count(2).await, (vec![id(2)], 0), "repeating the claim charges nothing");
    assert_eq!(claim_and_count(3).await, (vec![id(3)], 1));
    assert_eq!(claim_and_count(4).await, (Vec::new(), 0), "no tokens are left");
}
