#!/usr/bin/env bash
# Starts a real Slurm with one node, with accounting and without systemd, while this script runs. It
# runs the embedded matrix in four shards, kills one on purpose, resumes the run, and compares it
# with a plain run. Needs root, Debian's packages `slurm-wlm slurmdbd munge mariadb-server`, and the
# extra `slurm` in the active Python. All daemons belong to this script and end with it.
set -euo pipefail
cd "$(dirname "$0")/.."

home=$(mktemp -d) node=$(hostname -s) secret=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
megabytes=$(awk '/MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
export SLURM_CONF=$home/slurm.conf BYTE_EXACT_SLURM_CHECK=$home
daemons=()
end() {
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${daemons[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$home"
}
trap end EXIT
start() { # NAME COMMAND…: start a daemon in the foreground mode, as a background job of this shell
  local name=$1
  shift
  "$@" >"$home/$name.out" 2>&1 &
  daemons=("$!" "${daemons[@]}")
}
until_works() { # COMMAND…
  for _ in $(seq 80); do
    "$@" >"$home/last.out" 2>&1 && return
    sleep 0.5
  done
  echo "gave up on: $*" >&2
  tail -n 5 "$home"/*.out >&2
  return 1
}

mkdir -p "$home"/{state,spool,mysql}
chmod 711 "$home"
head -c 1024 /dev/urandom >"$home/munge.key"
chmod 400 "$home/munge.key"
cat >"$home/slurm.conf" <<EOF
ClusterName=check
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$home/munge.socket
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool
SlurmctldPort=36817
SlurmdPort=36818
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=36819
AccountingStoragePass=$home/munge.socket
JobAcctGatherType=jobacct_gather/linux
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$megabytes State=UNKNOWN
PartitionName=main Nodes=$node Default=YES MaxTime=INFINITE State=UP
EOF
cat >"$home/slurmdbd.conf" <<EOF
AuthType=auth/munge
AuthInfo=socket=$home/munge.socket
DbdHost=localhost
DbdPort=36819
SlurmUser=root
PidFile=$home/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=36820
StorageUser=slurm
StoragePass=$secret
EOF
chmod 600 "$home/slurmdbd.conf"

mariadb-install-db --user=root --datadir="$home/mysql" --auth-root-authentication-method=normal \
  >"$home/install.out" 2>&1
start munged munged --foreground --force --num-threads=10 --key-file="$home/munge.key" \
  --socket="$home/munge.socket" --pid-file="$home/munge.pid" --log-file="$home/munge.log" \
  --seed-file="$home/munge.seed"
start mariadbd mariadbd --no-defaults --user=root --datadir="$home/mysql" \
  --socket="$home/mysql.sock" --bind-address=127.0.0.1 --port=36820 --pid-file="$home/mysql.pid"
until_works mariadb --no-defaults --socket="$home/mysql.sock" -e \
  "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost' IDENTIFIED BY '$secret'"
start slurmdbd slurmdbd -D
until_works sacctmgr -n show cluster
sacctmgr -i add cluster check >"$home/cluster.out" 2>&1 || true
start slurmctld slurmctld -D
start slurmd slurmd -D
until_works bash -c 'sinfo -h -o %T | grep -q idle'
echo "Slurm $(sinfo --version | cut -d' ' -f2), node $(sinfo -h -N -o '%T, %c CPUs')"

if ! python scripts/slurm_check.py "$home/results"; then
  tail -n 30 "$home/results.log" >&2
  exit 1
fi
sacct -X -n -P -o JobName,State,ExitCode | sort | uniq -c
