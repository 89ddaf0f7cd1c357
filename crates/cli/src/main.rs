//! The stock `windlass` binary: the commands of `windlass_cli`, with the built-in kinds.

use std::process::ExitCode;

fn main() -> ExitCode {
    keep_memory_flat();
    windlass_cli::stock()
}

/// Has glibc give back what large buffers took, and share its heaps between threads. By default each thread gets a heap of its
/// own, into which buffers of changing length are put between what stays: what is in use does not grow with the number of
/// children of a branch, but what is kept of it would, to three times as much, for a gain in speed of a twentieth.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "there is no safe way to say this to glibc")]
fn keep_memory_flat() {
    const SETTINGS: [(libc::c_int, libc::c_int); 3] =
        [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, 128 << 10), (libc::M_TRIM_THRESHOLD, 16 << 20)];
    for (setting, value) in SETTINGS {
        // SAFETY: it takes two numbers, and no other thread has started. A setting that is not known is passed over.
        unsafe { libc::mallopt(setting, value) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn keep_memory_flat() {}
