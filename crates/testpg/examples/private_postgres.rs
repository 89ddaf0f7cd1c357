//! A private PostgreSQL server for tests in other languages: prints its address, and ends when its standard input does.

use std::io::{Read, Write};

use windlass_testpg::Cluster;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::start()?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", cluster.url())?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
