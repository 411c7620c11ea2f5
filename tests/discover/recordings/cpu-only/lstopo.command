$ lstopo-no-graphics --of xml
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" complete_cpuset="0xff" allowed_cpuset="0xff" gp_index="1">
    <object type="Package" os_index="0" gp_index="2">
      <object type="NUMANode" os_index="0" gp_index="4" local_memory="135000000000"/>
      <object type="Core" os_index="0" gp_index="20"/>
      <object type="Core" os_index="1" gp_index="21"/>
    </object>
    <object type="Package" os_index="1" gp_index="3">
      <object type="NUMANode" os_index="1" gp_index="5" local_memory="135000000000"/>
      <object type="Core" os_index="0" gp_index="30"/>
      <object type="Core" os_index="1" gp_index="31"/>
    </object>
  </object>
</topology>
