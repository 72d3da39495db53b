//! What the operating system says about this process. Linux only: elsewhere the fields are left out of `INFO`.

use std::fs;

/// Resident memory in bytes.
pub(super) fn resident_bytes() -> Option<u64> {
    kilobytes("/proc/self/status", "VmRSS:")
}

/// The memory of the machine in bytes.
pub(super) fn system_bytes() -> Option<u64> {
    kilobytes("/proc/meminfo", "MemTotal:")
}

/// The seconds of processor time that this process has used in user mode and in the kernel.
pub(super) fn cpu_seconds() -> Option<(f64, f64)> {
    /// Linux reports times to programs in these units on every architecture.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may contain spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some((seconds()?, seconds()?))
}

fn kilobytes(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_reports_memory_and_processor_time() {
        let (resident, system) = (resident_bytes().unwrap(), system_bytes().unwrap());
        assert!(resident > 100_000 && resident < system, "{resident} of {system}");
        let (user, kernel) = cpu_seconds().unwrap();
        assert!(user >= 0.0 && kernel >= 0.0);
    }
}
