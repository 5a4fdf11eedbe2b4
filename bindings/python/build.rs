//! Tells the sources which Python they are compiled for: `cfg(PyPy)`.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
