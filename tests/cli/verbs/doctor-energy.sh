# A board made of files: an Orin NX with one rail switched off and clocks that are free.
board=$PWD/board
hwmon=$board/sys/class/hwmon/hwmon5
gpu=$board/sys/class/devfreq/17000000.gpu
mkdir -p "$hwmon" "$gpu"
echo ina3221 >"$hwmon/name"
channel=1
for label in VDD_IN VDD_CPU_GPU_CV VDD_SOC; do
    echo $label >"$hwmon/in${channel}_label"
    echo 5000 >"$hwmon/in${channel}_input"
    echo 1000 >"$hwmon/curr${channel}_input"
    echo 1 >"$hwmon/in${channel}_enable"
    channel=$((channel + 1))
done
echo 0 >"$hwmon/in3_enable"
echo 306000000 >"$gpu/min_freq"
echo 918000000 >"$gpu/max_freq"
echo 612000000 >"$gpu/cur_freq"
ESPL_ENERGY_ROOT=$board espalier doctor | grep -A 1 -E '^[a-z]+ +(energy|clocks) '
echo 0 >"$hwmon/in1_enable"
ESPL_ENERGY_ROOT=$board espalier doctor | grep -A 1 -E '^[a-z]+ +energy '
