"""Processes with a file of hosts of their own."""

import subprocess

# Its own view of the mounts, in which another file, the first argument, is /etc/hosts.
WITH_HOSTS = (
    *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
    'mount --bind "$0" /etc/hosts && exec "$@"',
)
NO_HOSTS = "no mount namespace may be made here (unshare --user --mount)"


def can_have_hosts_of_its_own() -> bool:
    try:
        done = subprocess.run([*WITH_HOSTS, "/etc/hosts", "true"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0
